import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { shown } from "@/test/shown";
import { ApiError } from "../api/problem";
import { Problem } from "./problem";

it("a problem with fields shows each message once, with its commands as code", () => {
  const fields = [{ field: "code", message: "use `trainhall submit`", value: null }];
  const error = new ApiError(422, "Invalid request", "code: use `trainhall submit`", fields);
  shown(<Problem error={error} what="Could not add the node" />);
  expect(screen.getByRole("alert")).toHaveTextContent(
    /^Could not add the node: Invalid requestcode use trainhall submit$/,
  );
  expect(screen.getByText("trainhall submit").tagName).toBe("CODE");
});

it("a problem without fields shows its detail", () => {
  const error = new ApiError(409, "Wrong state", "it is completed");
  shown(<Problem error={error} what="Could not pause the job" />);
  expect(screen.getByText("it is completed")).toBeVisible();
});

it("a refused login shows its detail alone", () => {
  const error = new ApiError(401, "A valid credential is required", "the password is wrong");
  shown(<Problem error={error} what="Could not log in" />);
  expect(screen.getByRole("alert")).toHaveTextContent(/^Could not log inthe password is wrong$/);
});
