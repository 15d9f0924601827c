"""Checkpoints as transactions; imports `spec` and `distributed` alone.

format        the files: names, manifest, draft and commit, retention, removal, errors;
              without torch
header        the header of a safetensors file
state         a nested state as named tensors and plain values
index         Distributed Checkpoint's metadata as JSON (`state.json`)
staging       the copy to host memory
storage       Distributed Checkpoint's storage writer and reader
ranks         how the ranks of one save talk to each other
loading       the weights of a model, out of a checkpoint
export        the weights of a model, as one safetensors file
loader        the newest good one of several candidates
checkpointer  `Checkpointer`: save in the background, load with fallback
"""
