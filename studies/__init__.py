"""Studies made with headscope, each reproducible by one command."""
