// Makes node run the compiled files of `tree` (defined above this text by preload.rs) at the paths of their sources.
const Module = require("node:module");
const { join, resolve } = require("node:path");
const { pathToFileURL } = require("node:url");

const hasSynchronousHooks = typeof Module.registerHooks === "function";
const pathOf = (relative) => join(tree.root, relative);
const urlOf = (relative) => pathToFileURL(pathOf(relative)).href;

const byPath = new Map();
const byUrl = [];
for (const [path, format, code, resolutions] of tree.files) {
  const targets = Object.entries(resolutions);
  byPath.set(pathOf(path), { format, code, targets: new Map(targets.map(([from, to]) => [from, pathOf(to)])) });
  // Asynchronous hooks leave CommonJS to the patches below, so its code need not cross over to their thread.
  const source = format === "module" || hasSynchronousHooks ? code : null;
  byUrl.push([urlOf(path), { format, source, targets: new Map(targets.map(([from, to]) => [from, urlOf(to)])) }]);
}

const entry = byPath.get(pathOf(tree.entry));

// `makeHooks` also is sent to the thread of the asynchronous hooks as text: it can use nothing from around it.
function makeHooks(entries) {
  const files = new Map(entries);
  return {
    resolve(specifier, context, next) {
      const known = files.get(context.parentURL)?.targets.get(specifier) ?? specifier;
      const file = files.get(known);
      return file === undefined ? next(specifier, context) : { url: known, format: file.format, shortCircuit: true };
    },
    load(url, context, next) {
      const file = files.get(url);
      return file === undefined ? next(url, context) : { format: file.format, source: file.source, shortCircuit: true };
    },
  };
}

if (tree.files.length === 1 && entry.format === "commonjs") {
  // Nothing imports it, and the asynchronous hooks' thread costs more time than the whole rest of the start.
} else if (hasSynchronousHooks) {
  Module.registerHooks(makeHooks(byUrl));
} else {
  const text = `${makeHooks}
    let hooks;
    export const initialize = (entries) => { hooks = makeHooks(entries); };
    export const resolve = (...values) => hooks.resolve(...values);
    export const load = (...values) => hooks.load(...values);`;
  Module.register(`data:text/javascript,${encodeURIComponent(text)}`, { data: byUrl });
}

// Given the main file to load, the ES module loader would read a CommonJS file from the disk once more.
const runMain = Module.runMain;
Module.runMain = function (main = process.argv[1], ...others) {
  const isEntry = resolve(main) === pathOf(tree.entry);
  if (!isEntry || entry.format !== "commonjs") return runMain.call(this, main, ...others);
  process.argv[1] = pathOf(tree.entry);
  Module._load(process.argv[1], null, true);
};

const resolveFilename = Module._resolveFilename;
Module._resolveFilename = function (request, parent, ...others) {
  const known = byPath.get(parent?.filename)?.targets.get(request) ?? request;
  return byPath.has(known) ? known : resolveFilename.call(this, request, parent, ...others);
};
for (const ending of [".ts", ".tsx", ".mts", ".cts"]) {
  const previous = Module._extensions[ending] ?? Module._extensions[".js"];
  Module._extensions[ending] = function (module, path) {
    const file = byPath.get(path);
    if (file === undefined) return previous.call(this, module, path);
    if (file.format !== "commonjs" && !process.features.require_module) {
      const error = new Error(`${path} is an ES module: import it instead of requiring it`);
      throw Object.assign(error, { code: "ERR_REQUIRE_ESM" });
    }
    return module._compile(file.code, path, file.format);
  };
}
