//go:build !linux

package ws

import "net"

// There is no poller here: a goroutine reads each connection.
type poller struct{}

func (h *Hub) newPoller() *poller         { return nil }
func (p *poller) take(c net.Conn) netConn { return c }
func (p *poller) add(*Conn) bool          { return false }
func (p *poller) forget(*Conn)            {}
func (p *poller) close()                  {}
