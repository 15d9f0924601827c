import type { Examples } from "@/shared/spec/examples";

/** Example specs. Each runs as it is, except for the path of the script. */
export const EXAMPLES: Examples = [
  {
    label: "Handwritten digits",
    text: `name: digits
task:
  name: digits
resources:
  workers: 2
training:
  steps: 600
  global_batch_size: 64
  learning_rate: 0.001
  evaluate_every_steps: 100
checkpoint:
  every_steps: 200
`,
  },
  {
    label: "Synthetic load",
    text: `name: synthetic
task:
  name: synthetic
  params:
    features: 256
    hidden: [512, 512]
    step_seconds: 0.02
resources:
  workers: 2
training:
  steps: 2000
  global_batch_size: 64
checkpoint:
  every_seconds: 20
`,
  },
  {
    label: "Your own script",
    text: `# Any script that runs under torchrun; each worker gets RANK, WORLD_SIZE and the rest.
name: my-script
script:
  path: /path/to/train.py
  args: ["--epochs", "3"]
  env:
    OMP_NUM_THREADS: "1"
resources:
  workers: 2
`,
  },
];
