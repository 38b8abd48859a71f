// SPDX-License-Identifier: MIT

// The rows of bench/yield.c and bench/spawn.c in Go, printed in the same form, for `make bench` to set beside them.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"
)

func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("BENCH_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 5
}

func median(one func() float64) float64 {
	one()
	v := make([]float64, rounds())
	for i := range v {
		v[i] = one()
	}
	sort.Float64s(v)
	return v[len(v)/2]
}

func row(name string, n int, one func()) {
	ns := median(func() float64 {
		start := time.Now()
		one()
		return float64(time.Since(start).Nanoseconds()) / float64(n)
	})
	fmt.Printf("bench go.%s procs=%d ns=%.2f floor=0 n=%d\n", name, runtime.GOMAXPROCS(0), ns, n)
}

func yields(goroutines, each int) {
	var wg sync.WaitGroup
	wg.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func() {
			for i := 0; i < each; i++ {
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	wg.Wait()
}

func spawns(batches, of int) {
	var wg sync.WaitGroup
	for i := 0; i < batches; i++ {
		wg.Add(of)
		for k := 0; k < of; k++ {
			go wg.Done()
		}
		wg.Wait()
	}
}

func fib(n int) int {
	if n < 2 {
		return n
	}
	var left int
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		left = fib(n - 1)
		wg.Done()
	}()
	right := fib(n - 2)
	wg.Wait()
	return left + right
}

func main() {
	row("yield", 2*1000000, func() { yields(2, 1000000) })
	row("yield1000", 1000*1000, func() { yields(1000, 1000) })
	row("spawn1", 300000, func() { spawns(300000, 1) })
	row("spawn1000", 300000, func() { spawns(300, 1000) })
	row("fib", 317810, func() { fib(27) })
	row("spawn5M", 5000000, func() { spawns(1, 5000000) })
}
