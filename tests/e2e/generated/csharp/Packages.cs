// Replaces two packages that Debian lacks. The client imports JsonSubTypes but does not use it. The client uses Polly
// only if its user sets a retry policy.
namespace JsonSubTypes
{
    internal static class Unused { }
}

namespace Polly
{
    using System;
    using System.Threading;
    using System.Threading.Tasks;

    public enum OutcomeType { Successful, Failure }

    public class PolicyResult<T>
    {
        public OutcomeType Outcome { get; set; }
        public T Result { get; set; }
        public Exception FinalException { get; set; }
    }

    public interface ISyncPolicy<T> { }

    public interface IAsyncPolicy<T>
    {
        Task<PolicyResult<T>> ExecuteAndCaptureAsync(
            Func<Task<T>> action, CancellationToken token = default(CancellationToken));
    }
}
