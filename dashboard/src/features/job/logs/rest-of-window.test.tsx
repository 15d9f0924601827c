import { render, screen } from "@testing-library/react";
import { useRef } from "react";
import { expect, it, vi } from "vitest";
import { useRestOfWindow } from "./rest-of-window";

function Box() {
  const box = useRef<HTMLElement>(null);
  useRestOfWindow(box, { below: 60, least: 240 });
  return <section ref={box} aria-label="box" />;
}

it("fills the window, and follows it", () => {
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockReturnValue({ top: 400 } as DOMRect);
  window.innerHeight = 800;
  render(<Box />);
  const box = screen.getByLabelText("box");
  expect(box).toHaveStyle({ height: "340px" });
  window.innerHeight = 500;
  window.dispatchEvent(new Event("resize"));
  expect(box).toHaveStyle({ height: "240px" });
});
