import {
  Anchor,
  type AnchorProps,
  Button,
  type ButtonProps,
  Menu,
  type MenuItemProps,
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

/** A link in a menu. */
export const MenuLink = createLink((props: Own<MenuItemProps>) => (
  <Menu.Item component="a" {...props} />
));
