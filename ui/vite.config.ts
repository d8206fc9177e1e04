import { defineConfig } from "vite";

// Names without hashes: the server answers with validators, and a build changes no names in the repository.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/kubesched/dashboard/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    sourcemap: false,
    target: "es2022",
    rolldownOptions: {
      output: { entryFileNames: "app.js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]", codeSplitting: false },
    },
  },
});
