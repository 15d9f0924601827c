import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useState } from "react";
import "@/shared/api/client";
import { ApiError } from "@/shared/api/problem";
import { router } from "./router";
import { theme, variables } from "./theme";

function newQueries(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 1000,
        // A refusal would be repeated: only a request without a response is retried.
        retry: (failures, error) => error instanceof ApiError && error.status === 0 && failures < 2,
        retryDelay: (failures) => 500 * 2 ** failures,
      },
    },
  });
}

export function App() {
  const [queries] = useState(newQueries);
  return (
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto">
      <QueryClientProvider client={queries}>
        <Notifications position="bottom-right" containerWidth={440} />
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  );
}
