// Shows /openapi.json. Everything from it is put into the page as text, never as markup.
"use strict";

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return made;
}

// `code` between backticks is the only markup that descriptions use.
const prose = (text) => (text ?? "").split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
const nameOf = (reference) => reference.split("/").pop();

function typeOf(schema) {
  if (schema === undefined) return [];
  if (schema.$ref) return [element("a", { href: `#schema-${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  // Whatever is not required may be null as well.
  const choices = schema.properties ? undefined : (schema.oneOf ?? schema.anyOf)?.filter(({ type }) => type !== "null");
  if (choices) return choices.flatMap((choice, index) => [index ? " or " : "", ...typeOf(choice)]);
  if (schema.allOf) return schema.allOf.flatMap((part, index) => [index ? " and " : "", ...typeOf(part)]);
  if (schema.enum) return [schema.enum.join(", ")];
  if ([].concat(schema.type).includes("array")) return ["list of ", ...typeOf(schema.items)];
  if (schema.properties) return [`{${Object.keys(schema.properties).join(", ")}}`];
  if (typeof schema.additionalProperties === "object") return ["names to ", ...typeOf(schema.additionalProperties)];
  return [[].concat(schema.type ?? "anything").filter((type) => type !== "null").join(" or ")];
}

function bounds(schema) {
  const { minimum, maximum, pattern, minLength, maxLength, minItems, maxItems } = schema ?? {};
  const range = (from, to, what) =>
    from === undefined && to === undefined ? "" : ` ${from ?? ""}…${to !== undefined ? to : ""}${what}`;
  const text = range(minimum, maximum, "") + range(minLength, maxLength, " characters") + range(minItems, maxItems, " items");
  return [text, pattern ? element("code", {}, ` ${pattern}`) : undefined];
}

const row = (name, type, ...text) => element("tr", {}, element("td", {}, element("code", {}, name)),
  element("td", {}, element("span", { class: "quiet" }, type), element("p", {}, ...text)));

function properties(schema) {
  const parts = schema.allOf ?? (schema.properties ? [schema] : (schema.oneOf ?? schema.anyOf ?? []));
  const tables = parts.map((part) => {
    const rows = Object.entries(part.properties ?? {}).map(([name, property]) => row(name,
      [...typeOf(property), ...bounds(property), part.required?.includes(name) ? " · required" : ""], ...prose(property.description)));
    return [part !== schema && part.description ? element("h4", {}, ...prose(part.description)) : undefined,
      rows.length ? element("table", {}, rows) : element("p", {}, typeOf(part))];
  });
  return tables.length ? tables : [element("p", {}, [...typeOf(schema), ...bounds(schema)])];
}

function curl(method, path, operation) {
  const words = ["curl"];
  if (method !== "get") words.push("-X", method.toUpperCase());
  const content = operation.requestBody?.content ?? {};
  if (content["application/json"]) {
    words.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(content["application/json"].example ?? {}).replaceAll("'", "'\\''")}'`);
  } else if (content["multipart/form-data"]) words.push("-F file=@FILE");
  else if (Object.keys(content).length) words.push("--data-binary @FILE");
  return [...words, `'${location.origin}${path.replace(/\{(\w+)\}/g, (_, name) => name.toUpperCase())}'`].join(" ");
}

function copyable(text) {
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  });
  return [element("h4", {}, "curl ", button), element("pre", {}, text)];
}

// For GETs: fields for the parameters, and the beginning of what is answered.
function attempt(path, parameters) {
  const shown = parameters.filter((parameter) => parameter.in !== "header");
  const inputs = shown.map((parameter) => element("input", { name: parameter.name, placeholder: parameter.in }));
  const result = element("pre", { hidden: "" });
  const form = element("form", {}, shown.map((parameter, index) => element("label", {}, parameter.name, inputs[index])),
    element("button", {}, "Send"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let target = path;
    const query = new URLSearchParams();
    shown.forEach((parameter, index) => {
      const value = inputs[index].value;
      if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, encodeURIComponent(value));
      else if (value !== "") query.set(parameter.name, value);
    });
    result.hidden = false;
    result.textContent = "…";
    try {
      const response = await fetch(query.size ? `${target}?${query}` : target);
      result.textContent = `${response.status} ${response.headers.get("content-type") ?? ""}\n\n`;
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      for (let part; reader && !(part = await reader.read()).done && result.textContent.length < 20000;) result.append(part.value);
      await reader?.cancel();
    } catch (error) { result.textContent = String(error); }
  });
  return [element("h4", {}, "Try it"), form, result];
}

const table = (title, rows) => (rows.length ? [element("h4", {}, title), element("table", {}, rows)] : []);

function operation(api, path, method, described) {
  const parameters = described.parameters ?? [];
  const content = (media) => Object.entries(media ?? {}).flatMap(([type, { schema }], index) => [index ? "; " : "", `${type}: `, ...typeOf(schema)]);
  const answers = Object.entries(described.responses).map(([status, answer]) => {
    const resolved = answer.$ref ? api.components.responses[nameOf(answer.$ref)] : answer;
    const headers = Object.keys(resolved.headers ?? {}).join(", ");
    return row(status, content(resolved.content), ...prose(resolved.description), headers ? ` Headers: ${headers}.` : "");
  });
  return element("details", { id: described.operationId },
    element("summary", {}, element("span", { class: `method ${method}` }, method), element("code", {}, path), element("span", { class: "quiet" }, ...prose(described.summary))),
    described.description ? element("p", {}, ...prose(described.description)) : undefined,
    ...copyable(curl(method, path, described)),
    ...table("Parameters", parameters.map((parameter) => row(parameter.name,
      [`${parameter.in}: `, ...typeOf(parameter.schema), ...bounds(parameter.schema), parameter.required ? " · required" : ""], ...prose(parameter.description)))),
    ...table("Body", Object.entries(described.requestBody?.content ?? {}).map(([type, { schema }]) => row(type, typeOf(schema), ...prose(described.requestBody.description)))),
    ...table("Answers", answers),
    ...(method === "get" && !described.responses["101"] ? attempt(path, parameters) : []));
}

// A link to something folded opens it.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") target.open = true;
  target?.scrollIntoView();
}

async function show() {
  const [nav, main] = [document.querySelector("nav"), document.querySelector("main")];
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`/openapi.json answered ${response.status}; reload the page`);
  const api = await response.json();
  const all = Object.entries(api.paths).flatMap(([path, item]) => Object.entries(item).map(([method, described]) => [path, method, described]));
  main.replaceChildren(element("h1", {}, `${api.info.title} `, element("small", {}, `API ${api.info.version} · OpenAPI ${api.openapi}`)),
    element("p", {}, ...prose(api.info.description), " ", element("a", { href: "/openapi.json" }, "/openapi.json")));
  nav.replaceChildren();
  for (const tag of api.tags) {
    const own = all.filter(([, , described]) => described.tags?.[0] === tag.name);
    nav.append(element("h2", {}, tag.name), ...own.map(([path, method, described]) => element("a", { href: `#${described.operationId}`, title: `${path}: ${described.summary}` },
      element("span", { class: `method ${method}` }, method), element("code", {}, path))));
    main.append(element("h2", {}, tag.name), element("p", { class: "quiet" }, ...prose(tag.description)),
      ...own.map(([path, method, described]) => operation(api, path, method, described)));
  }
  const schemas = Object.entries(api.components.schemas);
  nav.append(element("h2", {}, "schemas"), ...schemas.map(([name]) => element("a", { href: `#schema-${name}` }, element("code", {}, name))));
  main.append(element("h2", {}, "schemas"), ...schemas.map(([name, schema]) => element("details", { id: `schema-${name}` },
    element("summary", {}, element("code", {}, name), element("span", { class: "quiet" }, ...prose(schema.description))), ...properties(schema).flat())));
  addEventListener("hashchange", reveal);
  reveal();
}

show().catch((error) => document.querySelector("main").replaceChildren(String(error)));
