// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { unwrap } from "./client";
import { ApiError } from "./problem";

const answer = (status: number, error: unknown) =>
  unwrap(Promise.resolve({ error, response: new Response(null, { status }) }));

describe("unwrap", () => {
  it("hands out the data of a good answer", async () => {
    const response = new Response(null, { status: 200 });
    await expect(unwrap(Promise.resolve({ data: 7, response }))).resolves.toBe(7);
  });

  it("throws problem details with their fields", async () => {
    const error = await answer(422, {
      title: "The job spec is not valid",
      detail: "training.steps: too small",
      errors: [{ field: "training.steps", message: "too small", value: 0 }, "junk", null],
    }).catch((caught) => caught);
    expect(error).toMatchObject({
      status: 422,
      title: "The job spec is not valid",
      message: "training.steps: too small",
      fields: [{ field: "training.steps", message: "too small", value: "0" }],
    });
  });

  it("takes answers that are no problem details", async () => {
    const call = answer(500, "<html>oops</html>");
    await expect(call).rejects.toBeInstanceOf(ApiError);
    await expect(call).rejects.toMatchObject({ status: 500 });
  });

  it("says that nothing answers, also when a gateway says it", async () => {
    for (const call of [
      unwrap(Promise.reject(new TypeError("Failed to fetch"))),
      unwrap(Promise.resolve({ error: new TypeError("Failed to fetch") })),
      answer(502, ""),
    ]) {
      await expect(call).rejects.toMatchObject({ status: 0 });
    }
  });

  it("leaves an aborted request what it is", async () => {
    const abort = new DOMException("aborted", "AbortError");
    await expect(unwrap(Promise.reject(abort))).rejects.toBe(abort);
  });
});
