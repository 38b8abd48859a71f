// SPDX-License-Identifier: MIT

// Peers of examples/echo and examples/httpd: net and net/http as one would use them.
// Usage: go-peer echo|http
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

func echo(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 16*1024)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err = c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("go: port", l.Addr().(*net.TCPAddr).Port)
	if len(os.Args) > 1 && os.Args[1] == "http" {
		hello := []byte("hello, world\n")
		http.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Write(hello)
		})
		http.Serve(l, nil)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			continue
		}
		go echo(c)
	}
}
