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

func pingPong(n int) {
	there, back := make(chan int), make(chan int)
	go func() {
		for v := range there {
			back <- v
		}
	}()
	for i := 0; i < n; i++ {
		there <- i
		<-back
	}
	close(there)
}

func stream(senders, each, capacity int) {
	c := make(chan int, capacity)
	for i := 0; i < senders; i++ {
		go func() {
			for i := 0; i < each; i++ {
				c <- i
			}
		}()
	}
	for i := 0; i < senders*each; i++ {
		<-c
	}
}

func choose(n int) {
	a, b := make(chan int), make(chan int)
	go func() {
		for i := 0; i < n; i++ {
			a <- i
		}
	}()
	for i := 0; i < n; i++ {
		select {
		case <-a:
		case <-b:
		}
	}
}

func skynet(up chan int, number, size int) {
	if size == 1 {
		up <- number
		return
	}
	c := make(chan int)
	for i := 0; i < 10; i++ {
		go skynet(c, number+i*(size/10), size/10)
	}
	sum := 0
	for i := 0; i < 10; i++ {
		sum += <-c
	}
	up <- sum
}

func contend(goroutines, each int) {
	var wg sync.WaitGroup
	var mutex sync.Mutex
	count := 0
	wg.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func() {
			for i := 0; i < each; i++ {
				mutex.Lock()
				count++
				mutex.Unlock()
			}
			wg.Done()
		}()
	}
	wg.Wait()
}

func sleepers(n int) {
	var wg sync.WaitGroup
	wg.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			time.Sleep(100 * time.Millisecond)
			wg.Done()
		}()
	}
	wg.Wait()
}

// How late a ticker of one millisecond is, the median of its ticks.
func ticker(ticks int) {
	ns := median(func() float64 {
		late := make([]float64, ticks)
		due := time.Now()
		for i := range late {
			due = due.Add(time.Millisecond)
			time.Sleep(time.Until(due))
			late[i] = float64(time.Since(due).Nanoseconds())
		}
		sort.Float64s(late)
		return late[ticks/2]
	})
	fmt.Printf("bench go.ticker procs=%d ns=%.2f floor=0 n=%d\n", runtime.GOMAXPROCS(0), ns, ticks)
}

func main() {
	row("pingpong", 300000, func() { pingPong(300000) })
	row("buffered", 5000000, func() { stream(1, 5000000, 128) })
	row("fanin", 1000000, func() { stream(100, 10000, 0) })
	row("select", 300000, func() { choose(300000) })
	row("skynet", 1111111, func() {
		c := make(chan int)
		go skynet(c, 0, 1000000)
		<-c
	})
	row("mutex8", 4000000, func() { contend(8, 500000) })
	ticker(500)
	row("sleep1M", 1000000, func() { sleepers(1000000) })
	row("yield", 2*1000000, func() { yields(2, 1000000) })
	row("yield1000", 1000*1000, func() { yields(1000, 1000) })
	row("spawn1", 300000, func() { spawns(300000, 1) })
	row("spawn1000", 300000, func() { spawns(300, 1000) })
	row("fib", 317810, func() { fib(27) })
	row("spawn5M", 5000000, func() { spawns(1, 5000000) })
}
