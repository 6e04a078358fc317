package llm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// turnIs is what a test says about a recorded turn.
type turnIs struct {
	text  string // the beginning of it
	calls string
	stop  llm.Stop
	usage llm.Usage
}

func TestCassettes_GiveTheRecordedConversation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file     string
		provider llm.Provider
		turns    []turnIs
	}{
		{"01_openai_chat_stream_3turn_parallel_tools.vcr.yaml", llm.OpenAI, []turnIs{
			{"", "call_3rqTYrA6H21AYUaRGP4F66oq get_country {}; call_Xw9XMKBJU48kAAd78WgIswDx get_product_name {}", llm.StopToolCalls, llm.Usage{Input: 364, Output: 40}},
			{"", `call_Vz0Sie91Ap56nH0ThKGrZXT7 get_weather {"city":"Mexico City"}`, llm.StopToolCalls, llm.Usage{Input: 423, Output: 15}},
			{"", `call_4kc6691zCzjPnOuEtbEGUvz2 final_result {"answers":[{"label":"Capital of the country","answer":"Mexico City"},{"label":"Weather in the capital","answer":"Sunny"},{"label":"Product Name","answer":"Pydantic AI"}]}`, llm.StopToolCalls, llm.Usage{Input: 448, Output: 49}},
		}},
		{"02_openai_chat_stream_parallel_tools.govcr.yaml", llm.OpenAI, []turnIs{
			{"", `call_8ElDxJj6u7IUDEwQIrwFbveM add {"a": 2, "b": 3}; call_HEZOX3JzspqFubADMNdWn12E multiply {"a": 2, "b": 3}`, llm.StopToolCalls, llm.Usage{Input: 190, Output: 379, Reasoning: 320}},
			{"Addition: 2 + 3 = 5", "", llm.StopEnd, llm.Usage{Input: 262, Output: 25}},
		}},
		{"04_anthropic_4_parallel_tools_nonstream.vcr.yaml", llm.Anthropic, []turnIs{
			{"I'll help you find out", `toolu_0167cfEnoQaPviGdVXA95zcu retrieve_entity_info {"name":"Alice"}; toolu_01EEe2V5HD1Ac4rKiUR4HD2T retrieve_entity_info {"name":"Bob"}; toolu_01XFyAjstT3966qvRynZyVPo retrieve_entity_info {"name":"Charlie"}; toolu_013mnQZbgtK2oe3Mo3XKJsx3 retrieve_entity_info {"name":"Daisy"}`, llm.StopToolCalls, llm.Usage{Input: 423, Output: 202}},
			{"Based on the retrieved", "", llm.StopEnd, llm.Usage{}},
		}},
		{"05_anthropic_thinking_signature_then_tool.vcr.yaml", llm.Anthropic, []turnIs{
			{"I'll help you find", "toolu_01YGzqpRE16Vricda3Aqcejo get_user_country {}", llm.StopToolCalls, llm.Usage{Input: 398, Output: 155}},
			{"Based on the information that you're from Mexico", "", llm.StopEnd, llm.Usage{Input: 566, Output: 126}},
		}},
		{"07_anthropic_image_tool_result.vcr.yaml", llm.Anthropic, []turnIs{
			{"I'll retrieve the file", "toolu_01XBL6B2Z996VStAuNCQapHS get_file {}", llm.StopToolCalls, llm.Usage{Input: 558, Output: 46}},
			{"I received a beautiful image of a rose!", "", llm.StopEnd, llm.Usage{Input: 795, Output: 209}},
		}},
		{"08_openai_image_tool_result_as_user_message.vcr.yaml", llm.OpenAI, []turnIs{
			{"", "call_4hrT4QP9jfojtK69vGiFCFjG get_image {}", llm.StopToolCalls, llm.Usage{Input: 46, Output: 11}},
			{"The image shows a potato.", "", llm.StopEnd, llm.Usage{Input: 503, Output: 8}},
		}},
		{"09_groq_400_tool_use_failed_bad_args_then_retry.vcr.yaml", llm.OpenAI, []turnIs{
			{"", "call_1_1 get_something_by_name fault", llm.StopToolCalls, llm.Usage{}},
			{"", `fc_311ba17b-89f9-48d3-8fd9-7e74a1264855 get_something_by_name {"name":"test"}`, llm.StopToolCalls, llm.Usage{}},
			{"The first call failed", "", llm.StopEnd, llm.Usage{Input: 336, CachedRead: 256, Output: 96, Reasoning: 59}},
		}},
		{"14_deepseek_reasoning_content_tool_call_stream.chunks.txt", llm.OpenAI, []turnIs{
			{"", `call_00_ioIn7yN9p1ZOMNpDLwd4MgAF weather {"location": "San Francisco"}`, llm.StopToolCalls, llm.Usage{Input: 339, CachedRead: 320, Output: 83, Reasoning: 39}},
		}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			t.Parallel()
			turns := replayBoth(t, tc.provider, tc.file)
			if len(turns) != len(tc.turns) {
				t.Fatalf("%d turns, want %d", len(turns), len(tc.turns))
			}
			for i, want := range tc.turns {
				got := turns[i]
				if summary(got.Calls) != want.calls || !strings.HasPrefix(got.Text, want.text) || got.Stop != want.stop {
					t.Errorf("turn %d is %q, %s, %s; want %q, %s, %s", i+1, got.Text, summary(got.Calls), got.Stop, want.text, want.calls, want.stop)
				}
				if want.usage != (llm.Usage{}) && got.Usage != want.usage {
					t.Errorf("turn %d: usage is %+v, want %+v", i+1, got.Usage, want.usage)
				}
			}
		})
	}
}

func TestCassettes_ThoughtsAreKept_C47(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"05_anthropic_thinking_signature_then_tool.vcr.yaml":        `"signature":"EqEECkYICxgCKkAo3UA4WwDbB8ihhpykVCsPx6iMzwNTNP8dePIgYjNpu2EWrt5JbApWWONEZaf5w46939Vu1SDU1`,
		"14_deepseek_reasoning_content_tool_call_stream.chunks.txt": `"reasoning_content":"The user is asking for the weather`,
		"09_groq_400_tool_use_failed_bad_args_then_retry.vcr.yaml":  `"reasoning":"We need to`,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			p := llm.OpenAI
			if strings.Contains(file, "anthropic") {
				p = llm.Anthropic
			}
			var all strings.Builder
			for _, turn := range replayBoth(t, p, file) {
				all.Write(turn.Message)
			}
			if !strings.Contains(all.String(), want) {
				t.Errorf("messages are %s\nwithout %s", all.String(), want)
			}
		})
	}
}

func TestCassettes_Refusal(t *testing.T) {
	t.Parallel()
	turn := replay(t, llm.Anthropic, cassette(t, "12_anthropic_refusal_stream.chunks.txt"))[0]
	if turn.Stop != llm.StopRefusal || !strings.HasPrefix(turn.Refusal, "cyber: This request triggered") {
		t.Errorf("stop is %s, refusal %q", turn.Stop, turn.Refusal)
	}
	if want := (llm.Usage{Input: 18, Output: 5}); turn.Usage != want {
		t.Errorf("usage is %+v, want %+v", turn.Usage, want)
	}
}

func TestCassettes_RateLimits(t *testing.T) {
	t.Parallel()
	for _, i := range cassette(t, "10_openrouter_429_x3.vcr.yaml") {
		_, err := newModel(t, i.answer).client(llm.OpenAI).Do(t.Context(), hello(), nil)
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.RateLimited || !strings.Contains(e.Message, "temporarily rate-limited upstream") {
			t.Errorf("got %v", err)
		}
	}
}
