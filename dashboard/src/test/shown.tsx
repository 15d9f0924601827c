import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterContextProvider } from "@tanstack/react-router";
import { render } from "@testing-library/react";
import { router } from "@/app/router";
import { fakeApi } from "./fake-api";

/** Renders a part of a page in front of `fakeApi`; what it asks. */
export function shown(what: React.ReactNode, answers: Record<string, unknown> = {}): Request[] {
  const asked = fakeApi(answers);
  render(
    <QueryClientProvider client={new QueryClient()}>
      <MantineProvider env="test">
        <RouterContextProvider router={router}>{what}</RouterContextProvider>
      </MantineProvider>
    </QueryClientProvider>,
  );
  return asked;
}
