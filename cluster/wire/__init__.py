"""The messages between coordinator and agent; imports the torch-free parts of `training` alone."""
