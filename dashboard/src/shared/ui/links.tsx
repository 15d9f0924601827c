import {
  ActionIcon,
  type ActionIconProps,
  Anchor,
  type AnchorProps,
  Badge,
  type BadgeProps,
  Button,
  type ButtonProps,
} from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { ComponentPropsWithRef } from "react";

type Own<P> = P & Omit<ComponentPropsWithRef<"a">, keyof P>;

/** A link in the page's style; its address is checked against the routes. */
export const AnchorLink = createLink((props: Own<AnchorProps>) => <Anchor {...props} />);

/** A link that looks like a button. */
export const ButtonLink = createLink((props: Own<ButtonProps>) => (
  <Button component="a" {...props} />
));

export const BadgeLink = createLink((props: Own<BadgeProps>) => <Badge component="a" {...props} />);

/** A link that looks like a button with nothing but an icon; it needs an `aria-label`. */
export const IconLink = createLink((props: Own<ActionIconProps>) => (
  <ActionIcon component="a" {...props} />
));
