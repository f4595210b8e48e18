package ws

import (
	"bytes"
	"math"
	"net"

	"relay/db/relay"
)

// This file takes the messages that clients send over their sockets (PROTOCOL §4,
// Frames). A relay.Sender decides about them, by the rules of a POST; the connection
// waits where a POST would be refused: it is not read meanwhile.

// SetSender sets the part of the server that accepts messages. It must be called
// before the first Connect. Without it, a frame that sends is refused.
func (h *Hub) SetSender(s relay.Sender) { h.sender = s }

// admit counts the memory of a message that comes, and waits until there is room.
func (c *Conn) admit(length int64, before int, last bool) error {
	limit := c.maxBytes()
	if length > int64(limit-before) { // not as a sum, which might overflow
		return tooBig(limit)
	}
	if c.hub.sender == nil || c.in.held > 0 { // all that the message may become is counted
		return nil
	}
	return c.holdMemory(before+int(length), last)
}

func (c *Conn) maxBytes() int {
	if c.hub.sender == nil {
		return maxMessage
	}
	return max(maxMessage, min(c.hub.sender.MaxFrame(), math.MaxInt32))
}

// holdMemory has the sender count n bytes, or more if the message may become longer. It
// does not read the socket until there is room. Error: net.ErrClosed.
func (c *Conn) holdMemory(n int, last bool) error {
	held, room := c.hub.sender.Hold(c.mechaID(), n, last)
	for ; room != nil; held, room = c.hub.sender.Hold(c.mechaID(), n, last) {
		c.in.lastFrame.Store(math.MaxInt64) // the client is not silent while we do not read
		c.in.begun.Store(0)                 // if the rest is late, then because of us
		if !c.awaitRoom(room) {
			return net.ErrClosed
		}
		c.in.lastFrame.Store(c.hub.elapsed())
	}
	c.in.held = int32(held)
	return nil
}

// awaitRoom waits until room is closed. It returns false if the connection ends before.
func (c *Conn) awaitRoom(room <-chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ending.dead {
		if !await(c, room) {
			return true
		}
	}
	return false
}

// takeMemory takes over the memory that is counted for the message that has come.
func (c *Conn) takeMemory() (release func()) {
	held := int(c.in.held)
	c.in.held = 0
	if held == 0 {
		return func() {}
	}
	return func() { c.hub.sender.Release(c.mechaID(), held) }
}

// releaseMemory releases the memory that is counted for the message that comes or has come.
func (c *Conn) releaseMemory() { c.takeMemory()() }

// takeLarge is takeFrame for a message that is longer than any frame but one that sends.
func (c *Conn) takeLarge(text []byte) error {
	c.charge() // before the turn, so that the Mecha's requests do not wait, too
	mecha := c.mechaID()
	c.hub.sender.BeginLarge(mecha)
	defer c.hub.sender.EndLarge(mecha)
	var f relay.Frame
	err := f.Read(text)
	switch {
	case f.Type != relay.FrameSend:
		return tooBig(maxMessage)
	case err != nil:
		c.releaseMemory()
		c.refuse(&f, err)
	default:
		c.sendMessage(&f)
	}
	return nil
}

// charge counts a message against the rate of the key's requests, and waits until the
// rate allows it.
func (c *Conn) charge() {
	if s := c.hub.sender; s != nil {
		c.slow(c.hub.elapsed(), s.Charge(c.key.Number))
	}
}

// sendMessage hands a message to the sender. The answer is sent when the message is
// durable or refused.
func (c *Conn) sendMessage(f *relay.Frame) {
	ref, release := f.Ref, c.takeMemory()
	if c.hub.sender == nil {
		release()
		c.refuse(f, relay.Errorf(relay.InvalidFrame, "messages are not accepted on this socket"))
		return
	}
	letter := f.Send
	c.hub.sender.SendFrame(c.key, &letter, func(answer []byte, err error) {
		release()
		if err != nil {
			c.refuse(&relay.Frame{Ref: ref}, err)
			return
		}
		c.answer(sentFrame(ref, answer))
	})
}

// sentFrame makes the answer to a frame of the body of a 201, which is a JSON object.
func sentFrame(ref string, body []byte) []byte {
	members := bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("{")), []byte("}"))
	b := field(newText("sent", usualFields+len(members)+len(ref)), "ref", ref)
	b = append(b, ',')
	return endText(append(b, members...))
}
