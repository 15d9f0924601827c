"""The states of jobs, attempts and nodes, and who may change them; imports `access`, `db` and the
torch-free parts of `training`.
"""
