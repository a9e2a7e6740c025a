use cofferdam_protocol::exec::{ExecId, ExecRequest};
use cofferdam_sandbox::local::*;
use std::time::Instant;
fn main() {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(async {
        let t = Instant::now();
        let runtime = LocalRuntime::new(&LocalConfig::default()).unwrap();
        println!("new {:?}", t.elapsed());
        let mut rows: Vec<[f64; 6]> = vec![];
        for i in 0..200 {
            let t0 = Instant::now();
            let p = runtime.prepare(&Default::default()).unwrap();
            let t1 = Instant::now();
            let s = p.assign(&runtime, &SandboxSpec::default(), None).await.unwrap();
            let t2 = Instant::now();
            let req = ExecRequest { argv: vec!["/bin/true".into()], ..Default::default() };
            s.client().run(&ExecId::try_from(format!("a{i}")).unwrap(), &req).await.unwrap();
            let t3 = Instant::now();
            s.client().run(&ExecId::try_from(format!("b{i}")).unwrap(), &req).await.unwrap();
            let t4 = Instant::now();
            s.destroy().await.unwrap();
            let t5 = Instant::now();
            let ms = |a: Instant, b: Instant| (b - a).as_secs_f64() * 1e3;
            rows.push([ms(t0, t1), ms(t1, t2), ms(t2, t3), ms(t3, t4), ms(t4, t5), ms(t0, t3)]);
        }
        for (k, n) in ["prepare", "assign", "exec1", "exec2", "destroy", "create->done"].iter().enumerate() {
            let mut v: Vec<f64> = rows.iter().map(|r| r[k]).collect();
            v.sort_by(f64::total_cmp);
            println!("{n:14} p50 {:.2} p95 {:.2} p99 {:.2}", v[100], v[190], v[198]);
        }
        let mut v: Vec<f64> = (0..200).map(|_| { let t = Instant::now(); std::process::Command::new("/bin/true").status().unwrap(); t.elapsed().as_secs_f64() * 1e3 }).collect();
        v.sort_by(f64::total_cmp);
        println!("fork+exec p50 {:.2}", v[100]);
    });
}
