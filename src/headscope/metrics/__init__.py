"""What heads do, as numbers: one family of metrics per file, one contract for all."""
