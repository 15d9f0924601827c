import { readdirSync, readFileSync } from "node:fs";
import type { ClientRequest, IncomingMessage } from "node:http";
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vitest/config";

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

/** An example, a schema, and the reader of Java's recordings: more than half of its bytes. */
const UNUSED_BY_TRACES = /^perf-vertx|^file-format-schema|\.wasm$/;

/**
 * Copies speedscope, which shows traces, to a folder of its own: the coordinator serves it with a
 * Content-Security-Policy of its own.
 */
function speedscope(): Plugin {
  const source = new URL("./node_modules/speedscope/", import.meta.url);
  return {
    name: "speedscope",
    apply: "build",
    generateBundle() {
      const add = (name: string, file: string) =>
        this.emitFile({
          type: "asset",
          fileName: `speedscope/${name}`,
          source: readFileSync(new URL(file, source)),
        });
      add("LICENSE.txt", "LICENSE");
      for (const name of readdirSync(new URL("dist/release/", source))) {
        if (!UNUSED_BY_TRACES.test(name)) add(name, `dist/release/${name}`);
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), speedscope()],
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
      "/speedscope": { target: coordinator, changeOrigin: true },
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
