import { client } from "@/client/client.gen";
import { ApiError } from "./problem";

// The page is served by the coordinator it talks to.
client.setConfig({ baseUrl: window.location.origin });
// A request that fails throws an ApiError, for the pages and for TanStack Query.
client.interceptors.error.use((error, response: Response | undefined) =>
  response === undefined ? ApiError.unreachable(error) : ApiError.of(response, error),
);
