import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { useState } from "react";
import { readMeQueryKey } from "@/client/@tanstack/react-query.gen";
import "@/shared/api/client";
import { isLoggedOut } from "@/shared/api/login";
import { ApiError } from "@/shared/api/problem";
import { router } from "./router";
import { theme, variables } from "./theme";

function newQueries(): QueryClient {
  const onError = (error: unknown) => {
    const me = readMeQueryKey();
    // The session has ended; the failed read of the user itself is not repeated.
    if (isLoggedOut(error) && queries.getQueryData(me) !== undefined) {
      queries.resetQueries({ queryKey: me });
    }
  };
  const queries: QueryClient = new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: {
      queries: {
        staleTime: 1000,
        // A refusal would be repeated: only a request without a response is retried.
        retry: (failures, error) => error instanceof ApiError && error.status === 0 && failures < 2,
        retryDelay: (failures) => 500 * 2 ** failures,
      },
    },
  });
  return queries;
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
