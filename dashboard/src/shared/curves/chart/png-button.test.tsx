import { MantineProvider } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { PngButton } from "./png-button";

test("an image that cannot be decoded is reported", async () => {
  const decode = vi.fn().mockRejectedValue(new Error("The source image cannot be decoded."));
  vi.stubGlobal(
    "Image",
    class {
      src = "";
      decode = decode;
    },
  );
  const show = vi.spyOn(notifications, "show");
  render(
    <MantineProvider env="test">
      <figure>
        <div data-plot>
          <svg role="img" aria-label="plot" />
        </div>
        <PngButton title="Loss" />
      </figure>
    </MantineProvider>,
  );
  await userEvent.click(screen.getByRole("button", { name: "Download Loss as PNG" }));
  await vi.waitFor(() =>
    expect(show).toHaveBeenCalledWith(
      expect.objectContaining({
        title: "Could not save Loss as an image",
        message: "The source image cannot be decoded.",
      }),
    ),
  );
  vi.unstubAllGlobals();
});
