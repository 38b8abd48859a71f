module magpie/bench/net

go 1.19
