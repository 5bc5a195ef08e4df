"""English words that tell number, gender or person: closed classes and short lists.

For the agreement of mentions (`headscope.text.agreement`). Pronouns are complete; nouns
and names are the common ones, written for this purpose. What is not here is not known.
"""

from __future__ import annotations

PRONOUNS: dict[str, tuple[str, str, str]] = {
    form: traits
    for forms, traits in (
        ("i me my mine myself", ("1", "sing", "mf")),
        ("we us our ours ourselves", ("1", "plur", "mf")),
        ("you your yours", ("2", "sing plur", "mf")),
        ("yourself", ("2", "sing", "mf")),
        ("yourselves", ("2", "plur", "mf")),
        ("he him his himself", ("3", "sing", "m")),
        ("she her hers herself", ("3", "sing", "f")),
        ("it its itself", ("3", "sing", "n")),
        ("they them their theirs themselves themself", ("3", "plur", "mfn")),
        ("this that", ("3", "sing", "mfn")),
        ("these those", ("3", "plur", "mfn")),
        ("who whom whose whoever", ("3", "sing plur", "mfn")),
        ("which what whatever", ("3", "sing plur", "n")),
        ("one oneself", ("3", "sing", "mfn")),
        ("someone somebody anyone anybody everyone everybody nobody", ("3", "sing", "mf")),
        ("something anything everything nothing", ("3", "sing", "n")),
        ("there here", ("3", "sing", "n")),
        ("y'all", ("2", "plur", "mf")),
        ("'em", ("3", "plur", "mfn")),
    )
    for form in forms.split()
}
"""Person, numbers and genders (m, f, n) that each pronoun allows."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MALE = _words(
    """
    mr mr. mister sir lord king prince duke baron emperor pope monk priest wizard
    man men boy boys gentleman gentlemen guy guys lad male father dad daddy papa husband
    brother son uncle nephew grandfather grandpa grandson stepfather stepson godfather groom
    bridegroom boyfriend widower businessman businessmen chairman congressman policeman
    fireman salesman spokesman fisherman cameraman actor waiter host hero steward bachelor
    """
)
"""Titles, kin and other nouns for men and boys."""
FEMALE = _words(
    """
    mrs mrs. ms ms. miss madam madame ma'am lady ladies queen princess duchess baroness
    empress nun witch woman women girl girls gal female mother mom mommy mum mama mamma wife
    sister daughter aunt auntie niece grandmother grandma granddaughter stepmother stepdaughter
    godmother bride girlfriend widow businesswoman businesswomen chairwoman congresswoman
    policewoman saleswoman spokeswoman actress waitress hostess heroine stewardess goddess
    """
)
"""Titles, kin and other nouns for women and girls."""

MALE_NAMES = _words(
    """
    aaron abraham adam adrian alan albert alexander alfred andrew andy anthony antonio arnold
    arthur barack ben benjamin bernard bill bob brad brandon brian bruce carl carlos charles
    charlie chris christopher craig dan daniel dave david dean dennis derek diego don donald
    doug douglas ed eddie edgar edward edwin eric ernest ethan eugene felix francis frank fred
    frederick gary geoffrey george gerald gilbert glenn gordon greg gregory harold harry
    henry herbert howard hugh ian isaac ivan jack jackson jacob james jason jeff jeffrey jeremy
    jerry jesse jim jimmy joe joel john johnny jonathan jose joseph joshua juan justin karl
    keith ken kenneth kevin kurt kyle larry lawrence lee leo leonard lewis louis lucas luis
    luke marcus mario mark martin matt matthew max michael miguel mike mitchell mohammed
    muhammad nathan neil nicholas nick noah norman oliver oscar patrick paul pedro peter phil
    philip phillip ralph randy raymond richard rick rob robert roger ronald roy russell ryan
    sam samuel scott sean sebastian simon stanley stephen steve steven stuart ted theodore
    thomas tim timothy todd tom tommy tony vincent vladimir walter warren wayne william zachary
    """
)
FEMALE_NAMES = _words(
    """
    abigail alice alicia amanda amber amy andrea angela anita ann anna anne annie april ashley
    audrey barbara beatrice betty beverly bonnie brenda brittany carmen carol caroline carolyn
    catherine cathy charlotte cheryl christina christine cindy claire clara connie crystal
    cynthia danielle deborah debra denise diana diane donna doris dorothy edith eileen elaine
    eleanor elena elizabeth ella ellen emily emma erica erin esther eva evelyn florence
    frances gina gloria grace hannah hazel heather heidi helen hillary holly ida irene isabel
    isabella jacqueline jane janet janice jean jennifer jessica jill joan joanna joanne josephine
    joyce juanita judith judy julia julie june karen kate katherine kathleen kathy katie kelly
    kim kimberly kristen laura lauren leah lillian linda lisa lois loretta lori louise lucia
    lucy lydia lynn madison margaret maria marie marilyn marjorie martha mary megan melanie
    melissa michelle mildred monica nancy naomi natalie nicole nina nora norma olivia pamela
    patricia paula pauline peggy phyllis rachel rebecca renee rita roberta rosa rose ruby ruth
    sally samantha sandra sara sarah sharon sheila sherry shirley sofia sonia sophia sophie
    stacy stephanie sue susan suzanne sylvia tammy teresa theresa tiffany tina tracy ursula
    valerie vanessa vera veronica victoria virginia vivian wanda wendy yolanda yvonne zoe
    """
)
"""Common given names; those borne by both (Robin, Alex, Jordan) are left out."""

PLURALS = _words(
    """
    people men women children feet teeth mice geese oxen lice data media criteria phenomena
    alumni bacteria cattle police folk clergy gentlemen ladies policemen policewomen fishermen
    """
)
SINGULARS = _words(
    """
    news series species means politics physics mathematics economics linguistics athletics
    diabetes measles headquarters bus gas lens glass class boss business process address access
    success progress congress process mess loss dress press kiss pass mass grass
    """
)
"""Singular in spite of their -s."""
COLLECTIVES = _words(
    """
    team group family company government committee council army band crew staff audience crowd
    police public press media majority minority couple club firm party faculty jury gang fleet
    department university agency organization association class community population board
    """
)
"""One or many: `the team … it` and `the team … they`."""

THINGS = _words(
    """
    abstract object place event time plant substance organization
    gpe loc org fac norp product work_of_art law language date money percent quantity
    ordinal cardinal
    """
)
"""Types of entities, as corpora name them (GUM, OntoNotes), that are not persons."""
