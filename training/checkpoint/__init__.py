"""Checkpoints as transactions. Import the modules by name; those without tensors need no torch.

names         how checkpoint folders are named; scan                        no torch
manifest      `manifest.json`: what a checkpoint holds; `verify_folder`     no torch
draft         writing one: temporary folder, hashes, fsync, commit          no torch
removal       deleting one, and what dead attempts left behind              no torch
retention     which of a job's are kept, and why                            no torch
errors        what can go wrong                                             no torch
state         a nested state as named tensors and plain values
index         Distributed Checkpoint's metadata as JSON (`state.json`)
staging       the copy to host memory
storage       Distributed Checkpoint's storage writer and reader
ranks         how the ranks of one save talk to each other
loading       a model's weights out of one
export        a model's weights as one safetensors file
checkpointer  `Checkpointer`: save in the background, load with fallback
"""
