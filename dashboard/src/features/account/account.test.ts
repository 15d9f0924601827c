import { expect, it } from "vitest";
import type { ApiToken } from "@/client";
import { browserOf } from "./browsers";
import { reachText } from "./reach";

it("a browser is named with its system", () => {
  const linux = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)";
  expect(browserOf(`${linux} Chrome/140.0.0.0 Safari/537.36`)).toBe("Chrome on Linux");
  expect(browserOf("Mozilla/5.0 (Windows NT 10.0; rv:140.0) Gecko/20100101 Firefox/140.0")).toBe(
    "Firefox on Windows",
  );
  expect(browserOf("curl/8.5.0")).toBe("curl/8.5.0");
  expect(browserOf("")).toBe("unknown");
});

it("what a token allows is said in words", () => {
  const token = (change: Partial<ApiToken>) =>
    reachText({ project: null, role: null, scopes: null, ...change } as ApiToken, "maria");
  expect(token({})).toBe("all that maria may");
  expect(token({ project: "vision" })).toBe("what maria may in project vision");
  expect(token({ project: "vision", role: "viewer" })).toBe("viewer at most, in project vision");
  expect(token({ role: "member" })).toBe("member at most, in every project");
  expect(token({ scopes: ["metrics"] })).toBe("reading metrics only");
});
