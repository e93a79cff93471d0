import { defineConfig } from "vite";

// The names of the built files are constant, because the server embeds them by name.
export default defineConfig({
  build: {
    target: "es2022",
    // The first browsers that have light-dark().
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "page.js",
        assetFileNames: "page[extname]",
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8097" } },
});
