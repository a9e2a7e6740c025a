use cofferdam_artifacts::zip::*;
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let ws = cofferdam_linux::files::Workspace::open(dir.as_ref()).unwrap();
    let mut o = ZipOptions::default();
    o.limits.bytes = 1 << 40;
    let z = write_zip(&ws, std::io::stdout(), o).unwrap();
    eprintln!("{z:?}");
}
