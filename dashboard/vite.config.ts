import type { ClientRequest, IncomingMessage } from "node:http";
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Where `npm run dev` finds the coordinator.
const coordinator = process.env.TRAINHALL_URL ?? "http://127.0.0.1:8000";

/**
 * To the coordinator this page is its own. The Origin of any other page stays: it must be refused,
 * since the browser's login is sent along.
 */
function rewriteOwnOrigin(outgoing: ClientRequest, { headers }: IncomingMessage): void {
  if (headers.origin === `http://${headers.host}`) {
    outgoing.setHeader("origin", new URL(coordinator).origin);
  }
}

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: {
    host: "127.0.0.1",
    port: 3000,
    proxy: {
      "/api": {
        target: coordinator,
        ws: true,
        changeOrigin: true,
        configure: (proxy) => {
          proxy.on("proxyReq", rewriteOwnOrigin);
          proxy.on("proxyReqWs", rewriteOwnOrigin);
        },
      },
      "/healthz": { target: coordinator, changeOrigin: true },
      "/readyz": { target: coordinator, changeOrigin: true },
    },
  },
  build: {
    outDir: "../api/static",
    emptyOutDir: true,
    target: "es2022",
    // Older ones lack light-dark(), and its replacement needs a colour scheme that is fixed in CSS.
    cssTarget: ["chrome123", "edge123", "firefox120", "safari17.5"],
    // A file of styles that failed to load once is not requested again when its page is.
    cssCodeSplit: false,
    sourcemap: false,
    chunkSizeWarningLimit: 600,
  },
  test: {
    restoreMocks: true,
    css: false,
    // The test files of a worker share their modules: loading these for each file takes two thirds
    // of the time. No test may mock a module; src/test/fake-api.ts fakes the coordinator's responses.
    isolate: false,
    // A bound for a loaded machine, not an expectation.
    testTimeout: 30_000,
    projects: [
      // Tests without a page run in Node: setting up jsdom takes longer than they do.
      {
        extends: true,
        test: { name: "logic", include: ["src/**/*.test.ts"], environment: "node" },
      },
      {
        extends: true,
        test: {
          name: "page",
          include: ["src/**/*.test.tsx"],
          environment: "jsdom",
          setupFiles: ["./src/test/setup.ts"],
        },
      },
    ],
  },
});
