import { describe, expect, it } from "vitest";
import type { ClusterNode, Device } from "@/shared/api/types";
import { isAbout, jobsOn, summed } from "./node-sums";

const device = (index: number, change: Partial<Device> = {}): Device => ({
  node_id: "n1",
  index,
  kind: "cuda",
  name: "H100",
  memory_total: 80,
  memory_used: 20,
  utilization: 50,
  temperature: 40 + index,
  power: 100,
  job_id: null,
  job_name: null,
  job_user: null,
  job_project: null,
  busy: false,
  gone: false,
  ...change,
});

describe("a node in one line", () => {
  it("sums its devices, without those that report nothing", () => {
    const silent = { utilization: null, temperature: null, power: null };
    expect(summed([device(0), device(1), device(2, silent)])).toEqual({
      utilization: 50,
      memoryUsed: 60,
      memoryTotal: 240,
      hottest: 41,
      power: 200,
    });
    expect(summed([]).utilization).toBeNull();
  });

  it("lists each job once, with its devices", () => {
    const held = [
      device(0, { busy: true, job_id: "a", job_name: "Nightly ranker" }),
      device(1, { busy: true, job_id: "b" }),
      // Of another project.
      device(4, { busy: true, job_id: null, job_name: null }),
      device(5, { busy: true, job_id: null, job_name: null }),
    ];
    expect(
      jobsOn([
        ...held,
        device(2, { busy: true, job_id: "a", job_name: "Nightly ranker" }),
        device(3),
      ]),
    ).toEqual([
      { id: "a", name: "Nightly ranker", devices: 2 },
      { id: "b", name: "b", devices: 1 },
      { id: null, name: null, devices: 2 },
    ]);
  });

  it("is found by its name, state, labels and jobs", () => {
    const node = {
      name: "gpu-01",
      state: "suspect",
      address: "10.0.0.11",
      labels: { rack: "7" },
      devices: [device(0, { busy: true, job_id: "a1", job_name: "Nightly ranker" })],
    } as unknown as ClusterNode;
    for (const text of ["", "GPU-01", "susp", "rack=7", "a1", "nightly", "0.11"]) {
      expect(isAbout(node, text), text).toBe(true);
    }
    expect(isAbout(node, "gpu-02")).toBe(false);
  });
});
