package check

import "time"

// checkRemoval checks the rows by which the removal of messages decides (db/internal/retention/prune_sql.go):
// no row may refer to one that counts as unused.
func (a *audit) checkRemoval() error {
	last, err := a.Conn.Number("SELECT value FROM setting WHERE name = 'last_position'")
	if err != nil {
		return err
	}
	dormantHas, err := a.hasMessages("d.conversation")
	if err != nil {
		return err
	}
	joinedHas, err := a.hasMessages("p.conversation")
	if err != nil {
		return err
	}
	for _, rule := range []struct {
		query string
		args  []any
	}{
		{query: `SELECT 'message ' || u.position || ' waits to leave the mailboxes, but is there' FROM unlisted u
			JOIN message m ON m.position = u.position`},
		{query: `SELECT 'message ' || position || ' was removed, but last_position is ' || ?1 FROM unlisted
			WHERE position > ?1`, args: []any{last}},
		{query: `SELECT 'conversation ' || d.conversation || ' is dormant, but has messages' FROM dormant d
			WHERE ` + dormantHas},
		{query: `SELECT 'conversation ' || conversation || ' is dormant, but has not two parties or none' FROM dormant
			WHERE (sender IS NULL) <> (recipient IS NULL) OR conversation < 0 AND sender IS NOT NULL OR conversation = 0`},
		{query: `SELECT 'the label of the dormant conversation ' || conversation || ' is missing' FROM dormant
			WHERE conversation < 0 AND NOT EXISTS (SELECT 1 FROM word WHERE id = -conversation)`},
		{query: `SELECT 'conversation ' || conversation || ' has participants, but no message, and is not dormant'
			FROM (SELECT DISTINCT conversation FROM participant) p
			WHERE NOT ` + joinedHas + ` AND NOT EXISTS (SELECT 1 FROM dormant d WHERE d.conversation = p.conversation)`},
		{query: `SELECT 'word ' || w.id || ' was last used at ' || w.used || ', but message ' || m.position || ' has it'
			FROM message m CROSS JOIN word w ON w.id IN (m.type, m.priority, m.version, -m.conversation)
			WHERE m.position - w.used > ?`, args: []any{wordSlack}},
		{query: `SELECT 'word ' || w.id || ' was last used at ' || w.used || ', but receipt ' || r.position || ' has it'
			FROM receipt r CROSS JOIN word w ON w.id = r.status WHERE r.position - w.used > ?`, args: []any{wordSlack}},
		{query: `SELECT 'key ' || k.public_id || ' ended, but a later message came with it' FROM message m
			CROSS JOIN mecha_key k ON k.id = m.sender_key WHERE m.position > k.ended`},
		{query: `SELECT 'key ' || k.public_id || ' ended, but a later receipt came with it' FROM receipt r
			CROSS JOIN mecha_key k ON k.id = r.key WHERE r.position > k.ended`},
	} {
		if err := a.ofRows(rule.query, rule.args...); err != nil {
			return err
		}
	}
	return nil
}

// wordSlack is how far word.used may be behind a use (package names), as a distance of
// positions.
const wordSlack = int64(time.Hour/time.Millisecond) << 12
