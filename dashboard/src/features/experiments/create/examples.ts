import type { Examples } from "@/shared/spec/examples";

const DIGITS = `kind: sweep
job:
  name: digits
  task:
    name: digits
  training:
    steps: 200
    global_batch_size: 64
space:
`;

/** Example experiments. Each runs as it is, except for the path of the script. */
export const EXAMPLES: Examples = [
  {
    label: "Every combination",
    text: `name: digits learning rate
${DIGITS}  training.learning_rate: [0.0001, 0.001, 0.01]
  task.params.hidden: [[32], [64, 64]]
method: grid
objective:
  metric: eval_accuracy
  goal: max
parallel: 2
`,
  },
  {
    label: "Random search",
    text: `name: digits random search
${DIGITS}  training.learning_rate: {log: [0.0001, 0.1]}
  task.params.dropout: {range: [0, 0.5]}
method: random
trials: 12
objective:
  metric: eval_accuracy
  goal: max
parallel: 4
seed: 1
`,
  },
  {
    label: "Early stopping",
    text: `# All runs take 20 steps, the best third of them 60, and so on: the best one takes all 540.
name: digits early stopping
${DIGITS.replace("    steps: 200\n", "")}  training.learning_rate: {log: [0.0001, 0.1]}
  task.params.hidden: [[16], [64], [64, 64]]
method: tpe
trials: 27
objective:
  metric: eval_accuracy
  goal: max
early_stopping:
  asha: {min_steps: 20, max_steps: 540, factor: 3}
parallel: 4
seed: 1
`,
  },
  {
    label: "Benchmark",
    text: `# How fast is each combination? Each runs three times, alone, in random order.
name: digits speed
kind: benchmark
job:
  name: digits
  task:
    name: digits
  training:
    steps: 60
    global_batch_size: 64
space:
  parallelism.strategy: [ddp, fsdp]
  resources.workers: [1, 2]
baseline:
  parallelism.strategy: ddp
  resources.workers: 1
repeats: 3
`,
  },
  {
    label: "Scaling",
    text: `# How much faster are more workers, with the same batch for all or as large a batch for each?
name: digits scaling
kind: scaling
job:
  name: digits
  task:
    name: digits
  training:
    steps: 60
    global_batch_size: 64
space:
  resources.workers: [1, 2]
scaling: [strong, weak]
repeats: 3
`,
  },
  {
    label: "Your own script",
    text: `# The script gets each value as an argument, and reports the metric with trainhall.report().
name: my-script learning rate
kind: sweep
job:
  name: my-script
  script:
    path: /path/to/train.py
    args: ["--lr", "\${lr}"]
  parameters:
    lr: 0.01
space:
  parameters.lr: [0.001, 0.01, 0.1]
method: grid
objective:
  metric: loss
`,
  },
];
