import { defineConfig } from "@hey-api/openapi-ts";

// The client is generated from the API's own description; `npm run generate:check` notices drift.
export default defineConfig({
  input: "./openapi.json",
  output: { path: process.env.OPENAPI_OUTPUT ?? "./src/client", clean: true },
  plugins: [
    { name: "@hey-api/client-fetch", throwOnError: true },
    "@hey-api/typescript",
    { name: "@hey-api/sdk", responseStyle: "data" },
    "@tanstack/react-query",
  ],
});
