module magpie.bench/go

go 1.21
