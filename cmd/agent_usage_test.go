package cmd_test

import "testing"

func TestWrongUsageOfSign(t *testing.T) { wantWrongUsage(t, "sign", "relay sign") }

func TestSlipsInSendGetASuggestion(t *testing.T) {
	for args, says := range map[string]string{
		"sned":                      `there is no command "sned"; did you mean "send"?`,
		"sned a^b {} --wait-ack 3s": `there is no command "sned"; did you mean "send"?`,
		"send a^b {} --wait-akc 3s": `unknown flag "--wait-akc"; did you mean "--wait-ack"?`,
		"send":                      "send takes an address and at most one payload",
	} {
		wantSuggestion(t, args, says)
	}
}
