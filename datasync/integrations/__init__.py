"""What stands between datasync and other software: job files for schedulers, and a check for training code."""
