import { describe, expect, it } from "vitest";
import type { Me } from "@/client";
import { rightsOf } from "./rights";

const me = (change: Partial<Me> = {}): Me => ({
  user: "maria",
  admin: false,
  how: "session",
  projects: [
    { name: "vision", role: "member" },
    { name: "text", role: "viewer" },
  ],
  ...change,
});

describe("rights", () => {
  it("depend on the role in the project", () => {
    const rights = rightsOf(me());
    expect(rights.submit).toBeNull();
    expect(rights.inProject("vision", "member")).toBeNull();
    expect(rights.inProject("text", "member")).toBe(
      "This takes the role member in project text; you have viewer. A maintainer of text or an admin can give it.",
    );
    expect(rights.inProject("speech", "viewer")).toContain("you have none");
    expect(rights.admin).toBe("This takes an admin. Admins can make you one.");
  });

  it("let members change what is their own", () => {
    const { command } = rightsOf(me());
    expect(command({ user: "maria", project: "vision" })).toBeNull();
    expect(command({ user: "jo", project: "vision" })).toContain("the role maintainer");
    expect(command({ user: null, project: "vision" })).toContain("the role maintainer");
  });

  it("of a viewer allow no submission", () => {
    const viewer = me({ projects: [{ name: "text", role: "viewer" }] });
    expect(rightsOf(viewer).submit).toContain("the role member");
  });

  it("allow everything to admins, and while they are not known", () => {
    for (const given of [me({ admin: true, projects: [] }), undefined]) {
      const { admin, submit, inProject, command } = rightsOf(given);
      const found = [
        admin,
        submit,
        inProject("x", "maintainer"),
        command({ user: null, project: "x" }),
      ];
      expect(found).toEqual([null, null, null, null]);
    }
  });
});
