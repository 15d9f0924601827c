import { fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { shown } from "@/test/shown";
import { CodeUpload } from "./code-upload";

const drop = (entry: unknown) =>
  fireEvent.drop(screen.getByRole("region", { name: "Code" }), {
    dataTransfer: { items: [{ webkitGetAsEntry: () => entry }] },
  });

it("says why a dropped folder cannot be read", async () => {
  shown(<CodeUpload text="name: a" onChange={() => {}} />);
  const readEntries = (_: unknown, refuse: (error: Error) => void) => refuse(new Error("no right"));
  drop({ isDirectory: true, name: "lab", createReader: () => ({ readEntries }) });
  expect(await screen.findByText("The folder cannot be read: no right")).toBeVisible();
  drop({ isDirectory: false });
  expect(await screen.findByText(/^That is no folder/)).toBeVisible();
});
