import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import type { Job } from "@/shared/api/types";
import Markdown from "@/shared/ui/markdown";
import { job, json, problem } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { Annotations } from "./annotations";

const PATCH = "PATCH /training/jobs/3f2a9c51d07b";
const shownFor = (change: Record<string, unknown>, answers: Record<string, unknown> = {}) =>
  shown(<Annotations job={job(change) as unknown as Job} />, answers);
const button = (name: string) => screen.getByRole("button", { name });

it("tags are added and removed, and a refusal is shown", async () => {
  let answer = problem(422, "Invalid request", "add_tags.0: a tag has at most 64 letters");
  const requests = shownFor({ tags: ["draft", "v 2"] }, { [PATCH]: () => answer });
  expect(screen.getByRole("link", { name: "v 2" })).toHaveAttribute(
    "href",
    expect.stringContaining("tag%3A%22v+2%22"),
  );
  await userEvent.click(button("Edit tags"));
  await userEvent.type(
    await screen.findByLabelText("Tags", { selector: "input" }),
    "{Backspace}best,",
  );
  await userEvent.click(button("Save tags"));
  expect(await screen.findByRole("alert")).toHaveTextContent("at most 64 letters");
  answer = json(job({ tags: ["draft", "best"] }));
  await userEvent.click(button("Save tags"));
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const sent = requests.filter(({ method }) => method === "PATCH");
  expect(await sent[1]?.json()).toEqual({ add_tags: ["best"], remove_tags: ["v 2"] });
});

it("notes are written", async () => {
  const requests = shownFor({}, { [PATCH]: json(job({ notes: "*a*" })) });
  await userEvent.click(button("Add notes"));
  await userEvent.type(await screen.findByLabelText("Notes"), "*a*");
  await userEvent.click(button("Save notes"));
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(await requests.find(({ method }) => method === "PATCH")?.json()).toEqual({ notes: "*a*" });
});

it("notes run no script and load nothing", () => {
  const text = [
    "# Title",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "![pixel](https://example.org/p.png) [bad](javascript:alert(1)) [good](https://example.org)",
  ].join("\n\n");
  shown(<Markdown text={text} />);
  expect(screen.getByRole("heading", { name: "Title" })).toBeVisible();
  expect(document.querySelector("main script, img, [onerror]")).toBeNull();
  expect(screen.getByText("bad")).toHaveAttribute("href", "");
  expect(screen.getByRole("link", { name: "good" })).toHaveAttribute("rel", "noreferrer noopener");
});

it.each(["constructor", "__proto__"])("a fenced block named %s is shown as text", (language) => {
  shown(<Markdown text={`\`\`\`${language}\nloss\n\`\`\``} />);
  expect(screen.getByText("loss")).toBeVisible();
});
