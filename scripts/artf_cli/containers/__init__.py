"""Building the wheel and training with it in containers: engine, images, compose file."""
