import { client } from "@/client/client.gen";
import { ApiError } from "./problem";

// The page is served by the coordinator it talks to.
client.setConfig({ baseUrl: window.location.origin });

interface Reply<T> {
  data?: T;
  error?: unknown;
  response?: Response;
}

/**
 * The data of a successful answer.
 *
 * @throws ApiError for any other answer, and when nothing answers.
 */
export async function unwrap<T>(call: Promise<Reply<T>>): Promise<T> {
  let reply: Reply<T>;
  try {
    reply = await call;
  } catch (error) {
    throw ApiError.unreachable(error);
  }
  if (reply.response === undefined) throw ApiError.unreachable(reply.error);
  if (!reply.response.ok) throw ApiError.of(reply.response, reply.error);
  return reply.data as T;
}
