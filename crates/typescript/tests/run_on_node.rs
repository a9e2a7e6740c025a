//! Runs TypeScript of every kind on the real node and compares what it prints.

mod support;

use support::{output_of, run};

fn check(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(output_of(source), *expected, "source:\n{source}");
    }
}

#[test]
fn types_are_blanked() {
    check(&[
        ("const x: number = 1; console.log(x)", "1"),
        ("let x!: number; x = 2; console.log(x!)", "2"),
        ("const f = <T,>(x: T): T => x; console.log(f<number>(3))", "3"),
        ("const f = async <T>(x: T): Promise<T> => x; f(4).then(v => console.log(v))", "4"),
        ("function f(this: { y: number }, x?: number) { return this.y + (x ?? 1) } console.log(f.call({ y: 4 }))", "5"),
        ("function f(this: { y: number }) { return this.y } console.log(f.call({ y: 4 }))", "4"),
        ("function f(this: any, ...r: number[]) { return r.length } console.log(f(1, 2))", "2"),
        ("const x = { a: 1 } satisfies Record<string, number>; console.log((x as any).a)", "1"),
        ("const x = <any>{ a: 1 }; console.log(x.a)", "1"),
        ("const f = () => <any>{ a: 7 }; console.log(f().a)", "7"),
        ("const f = () => <A><B>{ a: 7 }; type A = any; type B = any; console.log((f() as any).a)", "7"),
        ("function f(x: string): void; function f(x: number): void; function f(x: any) { console.log(x) } f(1)", "1"),
        ("const o: any = { a: { b: 1 } }; console.log(o?.a!.b, o.z?.b!.c, o!.a?.b)", "1 undefined 1"),
        ("declare const y: number; declare function g(): void; declare class C {} console.log(typeof y)", "undefined"),
        (
            "declare module 'x' { export const a: number } declare global { interface Q {} } export {}; \
            console.log(1)",
            "1",
        ),
        ("for (const x of [1, 2] as const) console.log(x as number)", "1\n2"),
        ("try { throw 1 } catch (e: unknown) { console.log(e as number) }", "1"),
        ("let x: any = 1; (x as number) = 2; x! += 1; (<any>x)++; console.log(x)", "4"),
        (
            "function is(x: any): x is string { return true } function as(x: any): asserts x is string {} \
            console.log(is(1))",
            "true",
        ),
        ("const g = Array<number>; console.log(new g(2).length, new Map<string, number>().size)", "2 0"),
        (
            "const [a, b]: [number, string] = [1, 'x']; const { c }: { c?: number } = {}; console.log(a, b, c)",
            "1 x undefined",
        ),
        ("const s = '日本' as '日本' | '한국'; console.log(s)", "日本"),
        ("function* g(): Generator<number> { const x: number = yield 1; } console.log([...g()].length)", "1"),
        ("label: for (const x of <number[]>[1]) { continue label } console.log(`${(1 as any) as string}`)", "1"),
        ("const x = 1 < 2, y = (3 as number) > 2; console.log(x && y ? ((a: number): number => a)(1) : 0)", "1"),
        ("type A = 1; interface B { c: string } console.log(typeof undefined as any as string)", "undefined"),
        (
            "let o = { m<T>(x: T): T { return x }, get g(): number { return 1 }, async *n(): any {} }; \
            console.log(o.m(o.g))",
            "1",
        ),
        ("import fs = require('fs'); console.log(typeof fs.readFileSync)", "function"),
    ]);
}

#[test]
fn classes_lose_types_and_keep_meaning() {
    check(&[
        ("abstract class A<T> implements I, J<T> { abstract x: number; abstract m(): void; n(): number { return 1 } }
         interface I {} interface J<T> {} class B extends A<string> implements I { x = 1; m() {} }
         console.log(new B().n())", "1"),
        ("class A { constructor(private x: number, readonly y = 2, z?: number) {} sum() { return this.x + this.y } }
         console.log(new A(1).sum(), Object.keys(new A(1)).join())", "3 x,y"),
        ("class A { constructor(public a: number) { 'use strict' } }
         class B extends A { b = 1; constructor(protected override a: number, public c: number) { super(a); this.c++ } }
         console.log(JSON.stringify(new B(1, 2)))", r#"{"a":1,"b":1,"c":3}"#),
        ("class A { static readonly x: number = 1; declare y: number; z?: string; w!: string; [k: string]: any;
         private static async m?(): Promise<void> {} static { this.x as number } }
         console.log(A.x, 'y' in new A(), 'z' in new A())", "1 false true"),
        ("class A { m(x: string): void; m(x: number): void; m(x: any): any { return x } constructor(); \
        constructor(x?: any) {} }
         console.log(new (A as any)(1).m(5))", "5"),
        ("const C = class implements Q {}; const D = class<T> extends C implements Q {}; interface Q {}
         console.log(typeof C, new D() instanceof C)", "function true"),
        ("class A { #p: number = 1; get p(): number { return this.#p } set p(v: number) { this.#p = v } }
         const a = new A(); a.p = 3; console.log(a.p)", "3"),
        ("class A { public readonly = 1; private static = 2; abstract = 3; declare = 4 } \
        console.log(Object.values(new A()).join())", "1,2,3,4"),
        ("export default abstract class A { abstract a(): void } console.log(A.name)", "A"),
    ]);
}

#[test]
fn enums_become_objects() {
    check(&[
        (
            "enum E { A, B = 5, C, D = 'x', F = A | B, G = E.C * 2, 'h-i' = 1, J } console.log(JSON.stringify(E))",
            r#"{"0":"A","1":"h-i","2":"J","5":"F","6":"C","12":"G","A":0,"B":5,"C":6,"D":"x","F":5,"G":12,"h-i":1,"J":2}"#,
        ),
        (
            "const enum E { A = 1 << 2, /* , */ B = 'b' + 'c', ['c'] = B, D = `t${1}` } console.log(E.A, E.B, \
            E['c'], E[4], E.D)",
            "4 bc bc A t1",
        ),
        ("enum E { A } enum E { B = 1 } console.log(E.A, E.B, E[1]); export {}", "0 1 B"),
        ("export enum E { A = 1, } export enum E { B = 2 } console.log(E[1], E[2])", "A B"),
        ("function f() { enum E { A = 3 } return E.A } { enum E { B } console.log(E.B) } console.log(f())", "0\n3"),
        ("declare enum X { A } enum Empty {} console.log(JSON.stringify(Empty))", "{}"),
        ("enum E { A = ('x' as string).length, B = <number>2 } console.log(E.A, E.B)", "1 2"),
    ]);
}

#[test]
fn namespaces_become_objects() {
    check(&[
        ("namespace N { export const x = 1; const y = 2; export function f() { return x + y } export class C {} \
        export type T = 1 }
         console.log(N.x, N.f(), new N.C() instanceof N.C, 'y' in N)", "1 3 true false"),
        ("namespace N { export let n = 1; export function up() { n++ } } N.up(); N.n += 10; N.up(); \
        console.log(N.n)", "13"),
        ("namespace A.B.C { export const z = 9 } namespace A.B { export const q = A.B.C } console.log(A.B.C.z)", "9"),
        ("namespace T { export interface X {} } export namespace U { type Y = 1 } console.log(typeof (globalThis as \
        any).T)", "undefined"),
        ("class K {} namespace K { export const v = 1 } function g() {} namespace g { export const w = 2 }
         console.log((K as any).v, (g as any).w)", "1 2"),
        ("export namespace N { export enum E { A } export namespace M { export const { a, b: [c] } = { a: 1, b: [2] \
        } } }
         console.log(N.E.A, N.M.a, N.M.c)", "0 1 2"),
        ("namespace N { export class N { v = 1 } export const y = new N().v } console.log(N.y, new N.N().v)", "1 1"),
        ("namespace N { export namespace M { export const v = 4 } } import V = N.M; import Unused = N.M; \
        console.log(V.v)", "4"),
        ("namespace N { export namespace M { export const v = 4 } export import P = M } console.log(N.P.v)", "4"),
        ("declare namespace D { const x: number } namespace N { declare const z: 1; export declare const w: 1; f(); \
        function f(): void {} } console.log(1)", "1"),
    ]);
}

#[test]
fn modules_keep_values_and_lose_types() {
    check(&[
        (
            "import type { A } from './missing'; import { type B } from './missing'; import { C } from './missing';
         import D, { E } from './missing'; import * as F from './missing';
         let x: A | B | C | D | E | F.G; console.log(typeof x)",
            "undefined",
        ),
        (
            "import { readFileSync, Stats, type Dirent, writeFileSync as w } from 'node:fs'; let s: Stats | Dirent;
         console.log(typeof readFileSync, typeof w)",
            "function function",
        ),
        (
            "import fs, { Stats } from 'node:fs'; import os, * as all from 'node:os'; let s: Stats; \
            console.log(!!fs, !!os)",
            "true true",
        ),
        ("import Dirent, { readFileSync } from 'node:fs'; let s: Dirent; console.log(!!readFileSync)", "true"),
        (
            "interface A {} const b = 1; export { A, b }; export type { A as C }; export { type A as D }; export \
            type * from './missing'; console.log(b)",
            "1",
        ),
        ("interface A {} export default A; console.log(import.meta.url.length > 0)", "true"),
        ("export default interface Q {} console.log(await 5)", "5"),
        (
            "export default function f(x: string): void; export default function f(x: any) { console.log(x) } f('1')",
            "1",
        ),
        (
            "import * as path from 'path'; console.log(path.basename(__filename), \
            path.basename(require('path').dirname(__filename)) === path.basename(__dirname))",
            "main.mjs true",
        ),
        (
            "import util = require('node:util'); import { sep } from 'node:path'; console.log(typeof util.inspect, \
            sep)",
            "function /",
        ),
        ("const x = { a: 1 }; export = x; console.log(module.exports === x)", "true"),
        ("import type { X } from 'x'; const os = require('os'); console.log(typeof os.cpus)", "function"),
        ("#!/usr/bin/env node\nimport type { X } from 'x'\nconsole.log(__dirname.length > 0)", "true"),
        ("for await (const x of [1]) console.log(x)", "1"),
    ]);
}

#[test]
fn lines_do_not_run_together() {
    check(&[
        ("let a = 1\ntype A = string\n(console.log)(a)", "1"),
        ("let a = [1]\ninterface I { x: 1 }\n[2].forEach(x => console.log(x))", "2"),
        ("let a = 1 as any\n(console.log)(a)", "1"),
        ("let a = [1] satisfies any\n;[2].map(x => x)\nlet b = a as any\n[3].forEach(x => console.log(x))", "3"),
        ("let a = 'x' as any\n`t`.length\nconsole.log(a)", "x"),
        (
            "class A { x = 1\n public ['y'] = 2\n get: any\n z() { return 3 }\n static?: any\n w = 4 as any\n ['v'] = \
        5\n private *g() {} }
         const a = new A(); console.log(a.x, a.y, a.z(), 'w' in a, a.v, 'static' in a)",
            "1 2 3 true 5 true",
        ),
        ("function f() { return <\n any\n>7 } console.log(f())", "7"),
        ("const f = (x: number): {\n a: number\n} => ({ a: x }); console.log(f(1).a)", "1"),
        ("const f = (x: number,\n)\n: number => x; console.log(f(8))", "8"),
        ("const f = async <\n T\n>(x: T) => x; f(9).then(console.log)", "9"),
        ("function g() { return <\n T\n>(x: T) => x } console.log(g()(10))", "10"),
        ("let a = 1\nfunction f(x: 1): void\nfunction f(x: any) {}\n(console.log)(a)", "1"),
        ("import type { A } from 'x'\n(console.log)(1)", "1"),
        ("let x: number\n(console.log)(2)", "2"),
        ("let a = 1\ndeclare const b: number\n(console.log)(a)\ndeclare function c(): void\n[1].map(x => x)", "1"),
        ("let a = 1\nnamespace T { type X = 1 }\n(console.log)(a)", "1"),
        ("const f = (): Array<\n ユ\n> => []; type ユ = any; console.log(f().length)", "0"),
        ("let a = Array<number>\nlet b = 1\nconsole.log(b)", "1"),
        ("<any>function () {}\n;<any>{}\nconsole.log(1)", "1"),
        ("if (true) console.log(1 as any)\nelse console.log(2)", "1"),
    ]);
}

#[test]
fn a_stack_trace_names_the_line_of_the_source() {
    let source = "import type { A } from './a'\n\ninterface B {\n  c: string\n}\ntype D<T> =\n  | T\n  | \
    null\nexport enum E {\n  F = 1,\n  G,\n}\nnamespace N {\n  export const x = 1\n}\nclass P {\n  constructor(\n   \
     private readonly x: D<number>,\n  ) {}\n  m(): void {\n    throw new Error(`${this.x}`)\n  }\n}\nnew P(E.G + \
     N.x).m()\n";
    let problem = String::from_utf8(run(source).stderr).unwrap();
    assert!(problem.contains("Error: 3"), "{problem}");
    assert!(problem.contains("main.mjs:21:11"), "{problem}");
    assert!(problem.contains("main.mjs:24:18") || problem.contains("main.mjs:24:"), "{problem}");
}
