// The program example is an agent: "worker" echoes numbers, "asker N" asks RELAY_TO for 1 to N.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"relay/http/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := client.FromEnv() // RELAY_URL, RELAY_KEY
	if err == nil && os.Args[1] == "worker" {
		err = c.Listen(ctx, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
			question := struct{ N int }{}
			if err := m.Decode(&question); err != nil {
				return err // the message is acknowledged as failed; after nil, as completed
			}
			return m.Reply(ctx, map[string]int{"echo": question.N})
		})
	}
	n, answer := 0, struct{ Echo int }{}
	fmt.Sscan(os.Args[len(os.Args)-1], &n) // a worker has none
	for i := 1; i <= n && err == nil; i++ {
		m, e := c.Ask(ctx, os.Getenv("RELAY_TO"), map[string]int{"n": i})
		if err = e; err == nil && m.Decode(&answer) == nil {
			fmt.Println(answer.Echo)
		}
	}
	if err != nil {
		log.Fatal(err) // it names the relay's code
	}
}
