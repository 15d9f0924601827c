import { type NavigateOptions, useRouter } from "@tanstack/react-router";
import type { ComponentProps, MouseEvent } from "react";

interface Props extends Omit<ComponentProps<"a">, "href" | "onClick"> {
  /** Where it leads; made by `linkOptions`, which checks it against the routes. */
  link: NavigateOptions;
}

/** A link in a row of a long table. The router's own watches the location, as hundreds of them would. */
export function RowLink({ link, className = "", ...rest }: Props) {
  const router = useRouter();
  const follow = (event: MouseEvent) => {
    const { button, metaKey, ctrlKey, shiftKey, altKey } = event;
    // The browser opens tabs, windows and downloads.
    if (button !== 0 || metaKey || ctrlKey || shiftKey || altKey) return;
    event.preventDefault();
    void router.navigate(link);
  };
  return (
    <a
      {...rest}
      className={`${className} mantine-focus-auto`}
      href={router.buildLocation(link).href}
      onPointerEnter={() => void router.preloadRoute(link)}
      onClick={follow}
    />
  );
}
