// @vitest-environment jsdom
import { expect, it, vi } from "vitest";
import { getJob } from "@/client";
import "./client";
import { ApiError } from "./problem";

/** The outcome of a request that a coordinator answers so. */
function asked(answer: () => Response | Promise<Response>): Promise<unknown> {
  vi.stubGlobal("fetch", async () => answer());
  return getJob({ path: { job_id: "j1" } });
}

const refused = (status: number, body: unknown) =>
  asked(() => new Response(typeof body === "string" ? body : JSON.stringify(body), { status }));

it("a successful response is its data", async () => {
  await expect(asked(() => Response.json({ id: "j1" }))).resolves.toEqual({ id: "j1" });
});

it("problem details are thrown with their fields", async () => {
  const error = await refused(422, {
    title: "Invalid job spec",
    detail: "training.steps: too small",
    errors: [{ field: "training.steps", message: "too small", value: 0 }, "junk", null],
  }).catch((caught) => caught);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({
    status: 422,
    title: "Invalid job spec",
    message: "training.steps: too small",
    fields: [{ field: "training.steps", message: "too small", value: "0" }],
  });
});

it("a failure without problem details is an error", async () => {
  const call = refused(500, "<html>oops</html>");
  await expect(call).rejects.toBeInstanceOf(ApiError);
  await expect(call).rejects.toMatchObject({ status: 500 });
});

it("no response has status 0, also behind a gateway", async () => {
  const call = asked(() => Promise.reject(new TypeError("Failed to fetch")));
  await expect(call).rejects.toMatchObject({ status: 0 });
  await expect(refused(502, "")).rejects.toMatchObject({ status: 0 });
});

it("an aborted request stays an abort", async () => {
  const abort = new DOMException("aborted", "AbortError");
  await expect(asked(() => Promise.reject(abort))).rejects.toBe(abort);
});
