import {
  ActionIcon,
  Alert,
  type CSSVariablesResolver,
  createTheme,
  type MantineColorsTuple,
  Modal,
} from "@mantine/core";

const ink: MantineColorsTuple = [
  "#eef3ff",
  "#dce4f9",
  "#b9c8f0",
  "#93a9e6",
  "#7390de",
  "#5f7fd9",
  "#4b6fd0",
  "#3f60bd",
  "#3555a8",
  "#284892",
];

export const theme = createTheme({
  primaryColor: "ink",
  black: "#1b2129",
  // White text on either has a contrast of 4.5 to 1.
  primaryShade: { light: 7, dark: 6 },
  colors: { ink },
  autoContrast: true,
  fontFamily:
    "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
  fontFamilyMonospace:
    "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace",
  defaultRadius: "md",
  cursorType: "pointer",
  components: {
    // A disabled command keeps its place without drawing the eye.
    ActionIcon: ActionIcon.extend({
      classNames: { root: "app-action" },
    }),
    // It has an icon alone.
    Modal: Modal.extend({
      defaultProps: { closeButtonProps: { "aria-label": "Close" } },
    }),
    Alert: Alert.extend({
      vars: (_, { color = "gray" }) => ({
        root: {
          "--alert-bg": `color-mix(in srgb, var(--mantine-color-${color}-6) 9%, var(--app-surface))`,
          "--alert-bd": `1px solid color-mix(in srgb, var(--mantine-color-${color}-6) 40%, transparent)`,
          "--alert-color": `light-dark(var(--mantine-color-${color}-8), var(--mantine-color-${color}-4))`,
        },
      }),
    }),
  },
});

/** Quiet and coloured text that still has a contrast of 4.5 to 1 on every surface of the page. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#5a6470",
    "--mantine-color-red-text": "#c92a2a",
    "--mantine-color-orange-text": "#ac4700",
    "--mantine-color-yellow-text": "#8a5a00",
  },
  dark: { "--mantine-color-dimmed": "#98a2ad" },
});
