import { Stack, Title } from "@mantine/core";
import type { ReactNode } from "react";
import { useTitle } from "@/shared/title";

interface Props {
  title: string;
  children: ReactNode;
}

/** A page of the login: nothing but its form. */
export function LoginFrame({ title, children }: Props) {
  useTitle(title);
  return (
    <Stack component="main" id="main" align="center" gap="md" py={56} px="md">
      <img src="/favicon.svg" width={40} height={40} alt="" />
      <Title order={1} size="h3" ta="center">
        {title}
      </Title>
      <Stack gap="md" style={{ width: "min(100%, 420px)" }}>
        {children}
      </Stack>
    </Stack>
  );
}
