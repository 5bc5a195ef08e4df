"""The model hub: asked once, with a short patience, before any download starts."""

from __future__ import annotations

import difflib
from typing import TypedDict

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

from headscope.errors import HubUnreachable, ModelNotFound, UnknownName
from headscope.model.packaged.weights import PACKAGED

HUB_TIMEOUT = 5.0
"""Seconds to wait for the model hub before saying that it cannot be reached."""


class HubOptions(TypedDict, total=False):
    """How transformers finds the files of a model."""

    revision: str | None
    local_files_only: bool
    trust_remote_code: bool


def reach_hub(name: str, revision: str | None) -> bool:
    """Ask the hub for a model; False where only the hub's cache has it.

    transformers itself would retry for half a minute.

    Raises:
        HubUnreachable: the hub does not answer, and its cache on this machine lacks the model.
        ModelNotFound: the hub answers that the model is not there, or not for everyone.
    """
    try:
        cached = try_to_load_from_cache(name, "config.json", revision=revision)
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    except HFValidationError as error:
        raise ModelNotFound(f"{name!r} is neither a folder nor a hub id: {error}") from None
    except GatedRepoError as error:
        raise ModelNotFound(
            f"{name!r} is gated on the hub: accept its terms there and log in with "
            f"`hf auth login`. ({error})"
        ) from error
    except RepositoryNotFoundError:
        hint = UnknownName.of("model", name, PACKAGED)
        raise ModelNotFound(
            f"There is no model {name!r} on the hub (or it is private), no folder of that "
            f"name, and no packaged model. {hint}"
        ) from None
    except Exception as error:  # no network: the hub client raises its HTTP library's errors
        if isinstance(cached, str):
            return False
        nearest = difflib.get_close_matches(name, PACKAGED, n=1)
        if nearest:
            raise HubUnreachable(
                f"There is no packaged model {name!r} and no such folder. Did you mean "
                f"{nearest[0]!r}? (The model hub cannot be reached: {error}.)"
            ) from error
        raise HubUnreachable(
            f"{name!r} is not a folder or a packaged model ({', '.join(PACKAGED)}), and the "
            f"model hub cannot be reached ({error}). Connect to a network; or download the "
            f"model elsewhere (`hf download {name}`) and pass its folder; or use a packaged "
            "model."
        ) from error
    return True
