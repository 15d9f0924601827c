"""The ledger: the device-hours that attempts held and what became of them, energy and money.

An attempt holds its devices from its start to its end. Its device-hours are those devices times
that time, and divide into

- useful: in steps that count, less the waiting for data;
- waiting for data: in steps that count, until a batch was there;
- redone: in steps that do not count, since a later attempt or generation took them again;
- idle: outside steps: start-up, regrouping, evaluation, saving, and the end;
- not measured: a script without `step_seconds` of every step, and the newest of an attempt that
  runs.

Time in steps is the job-wide metric `step_seconds`, of which `data_seconds` is the waiting. Energy
is the measured power of GPUs over the time that they were held.

It imports `monitoring` and, of the cluster, only `access`, `service` and what that imports.
"""
